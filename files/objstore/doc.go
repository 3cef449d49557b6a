// Package objstore is what the rest of the project needs of an object store: to list,
// look at, read and write immutable versions of named objects.
//
// Store is the interface; files/objstore/gcs keeps objects in a bucket of Google Cloud Storage, and
// files/objstore/storetest holds what every implementation must do.
// Everything that is read is read of one Object, a version that List, Stat or Put
// returned: if it was replaced or removed since, reading it is ErrChanged, so that the
// parts of an object that are read one after the other always fit together. A Put is
// seen whole or not at all, and can be made to depend on the version that it replaces.
//
// Cloud drivers are imported by commands only, which hand a Store to whoever needs one.
package objstore
