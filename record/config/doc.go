// Package config reads the published configuration files of a run: state.toml, which
// describes the run and its model, and data.toml, which describes the folder that a
// data server serves.
//
// LoadState turns a state.toml into a Run; Run.CoordinatorState turns that into the
// first state of a coordinator. The parts of the model that only clients need travel
// in the coordinator's state as canonical bytes: EncodeModel makes them, DecodeModel
// reads them. LoadDataServer reads a data.toml.
//
// Reading is strict. An unknown, missing or wrong key is an error that names the file,
// line, column and, where there is one, the key that was probably meant. All errors of
// a file are reported together. The package holds definitions only: what a schedule or
// an optimizer computes is the business of package train.
package config
