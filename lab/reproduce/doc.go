// Package reproduce runs the evaluation of "Tensor parallelism for SSMs" on hardware that
// need not be there, and lays what comes out beside what was published. Nothing is fitted:
// hardware is that of the profiles, memory and steps are those of Krait's schedules.
package reproduce
