// Package gcs keeps objects in a bucket of Google Cloud Storage.
//
// Open opens the bucket: without credentials, as anybody may read a public one, or with
// those of the environment (GOOGLE_APPLICATION_CREDENTIALS, gcloud's, or the machine's
// own). STORAGE_EMULATOR_HOST names an emulator to use in Google's place. Versions are the
// service's generations. Reads and writes are tried again, with growing pauses, until
// their context ends or Options.Tries are used up. List, Stat and ReadAt have deadlines of
// their own; Open and Put end with their context.
//
// This is the only package that imports the driver, which is large: commands import it
// and hand the store on.
package gcs
