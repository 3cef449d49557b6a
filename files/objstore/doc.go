// Package objstore defines the interface of an object store: it lists, describes, reads and writes
// immutable versions of named objects.
//
// Store is the interface. Package files/objstore/gcs implements it for buckets of Google Cloud
// Storage, and package files/objstore/storetest tests any implementation.
//
// Every read names an Object, a version that List, Stat or Put returned. If that version was
// replaced or removed since, the read returns ErrChanged. Parts of an object that are read one
// after the other therefore always belong together. A Put is visible completely or not at all, and
// can depend on the version that it replaces.
//
// Only commands import cloud drivers; they pass a Store to other packages.
package objstore
