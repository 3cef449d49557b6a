// Package config reads the published configuration files of a run: state.toml, which describes the
// run and its model, and data.toml, which describes the folder that a data server serves.
//
// LoadState reads a state.toml into a Run, and Run.CoordinatorState returns the first state of the
// run's coordinator. The parts of the model that only clients need are stored in the coordinator's
// state as canonical bytes: EncodeModel encodes them, DecodeModel decodes them. LoadDataServer
// reads a data.toml.
//
// Reading is strict. An unknown, missing or wrong key is an error that names the file, the line,
// the column and, if possible, the key that was probably meant. All errors of a file are reported
// together. The package contains only definitions: package train implements the schedules and
// optimizers.
package config
