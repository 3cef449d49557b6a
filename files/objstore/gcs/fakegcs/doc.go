// Package fakegcs is a small in-memory stand-in for the JSON interface of Google Cloud
// Storage, for tests: listing, metadata, ranged reads and uploads, with generations and
// preconditions. New and Start start one; its Host goes into STORAGE_EMULATOR_HOST.
package fakegcs
