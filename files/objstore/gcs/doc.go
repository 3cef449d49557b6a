// Package gcs implements objstore.Store for a bucket of Google Cloud Storage.
//
// Open opens a bucket and returns a Store. It uses no credentials, as for a public bucket, or the
// credentials of the environment (GOOGLE_APPLICATION_CREDENTIALS, gcloud's, or the machine's).
// STORAGE_EMULATOR_HOST names an emulator to use instead of Google.
//
// Versions are the generations of the service. Reads and writes are retried with growing pauses
// until their context ends or Options.Tries are used up. List, Stat and ReadAt have additional
// deadlines; Open and Put end with their context.
//
// This is the only package that imports the driver, which is large. Commands import it and pass on
// the store.
package gcs
