// Package versions has the versions of texts and files that outlive the program that wrote them.
// docs/formats.md says what they are, and when a version changes.
package versions

import "fmt"

// Format is a format and its newest version, which Krait writes. It reads all versions from 1 on.
type Format struct {
	Name    string // as errors and docs/formats.md call it
	Version int
}

// All formats. A text or a JSON file that says no version is of version 1.
var (
	Graph       = Format{"graph text", 1}
	Schedule    = Format{"schedule", 1}
	Placement   = Format{"placement file", 1}
	Certificate = Format{"certificate", 1}
	Profile     = Format{"hardware profile", 1}
	Calibration = Format{"payload calibration", 1}
	State       = Format{"saved state", 3} // also the files of a prefix cache
	Chat        = Format{"saved chat", 1}
)

// All lists the formats.
var All = []Format{Graph, Schedule, Placement, Certificate, Profile, Calibration, State, Chat}

// Accept returns an error for a version that this program cannot read; 0 stands for a version that
// is not given.
func (f Format) Accept(version int) error {
	switch {
	case version < 0:
		return fmt.Errorf("%s of version %d; versions count from 1", f.Name, version)
	case version > f.Version:
		return fmt.Errorf("%s of version %d; this krait reads versions up to %d: use a newer krait", f.Name, version, f.Version)
	}
	return nil
}
