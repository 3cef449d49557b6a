// Package fakegcs is a small in-memory fake of the JSON interface of Google Cloud Storage, for
// tests: listing, metadata, ranged reads and uploads, with generations and preconditions. New and
// Start start a Server; its Host is the value for STORAGE_EMULATOR_HOST.
package fakegcs
