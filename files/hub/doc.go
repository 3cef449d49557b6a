// Package hub is a client of the Hugging Face Hub. It downloads models into the cache that the
// Hub's Python and JavaScript libraries also use, and commits files to a repository.
//
// The main type is Client:
//
//	options, err := hub.FromEnvironment(os.LookupEnv) // HF_TOKEN, HF_HOME, HF_ENDPOINT, …
//	client, err := hub.New(options)
//	got, err := client.Snapshot(ctx, "org/name", hub.SnapshotOptions{Revision: "main"})
//	// got.Dir has the files of got.Commit
//	commit, err := client.Upload(ctx, "org/name", files, hub.UploadOptions{Message: "step 100"})
//
// # Downloads
//
// A client resolves a branch or tag to a commit once. All further requests name this commit, so a
// snapshot never mixes two commits. The tree of the commit lists the files with their sizes and
// hashes. Every received byte is checked against them (SHA-256 for large files, the Git blob id for
// other files) before the file enters the cache. An interrupted download continues where it
// stopped. The token is sent only to the Hub's own host, even if the Hub redirects to a different
// host.
//
// With Options.Datasets, a client accesses data sets, whose addresses and folders differ by a word.
//
// # The cache
//
//	models--org--name/blobs/<hash>             content
//	models--org--name/blobs/<hash>.incomplete  content being downloaded
//	models--org--name/snapshots/<commit>/path  relative link to a blob
//	models--org--name/refs/<branch>            commit, as text
//	models--org--name/trees/<commit>.json      files of the commit, to detect missing ones offline
//	.locks/models--org--name/<hash>.lock       held (flock) while a blob is written
//
// # Uploads
//
// Large files go to the LFS storage that the Hub names, in one piece or in parts. A commit names
// its parent, so the Hub refuses one of two concurrent writers (errConflict), and no commit
// overwrites another unseen. Files that the repository already has are not sent again. If nothing
// differs, there is no commit.
//
// For tests, package hubtest is a server with the same protocol.
package hub
