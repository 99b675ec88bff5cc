// Package reproduce simulates the evaluation of "Tensor parallelism for SSMs", and compares the
// results with the published ones. Nothing is fitted: hardware follows the profiles, memory and
// steps Krait's schedules.
package reproduce
