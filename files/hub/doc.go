// Package hub talks to the Hugging Face Hub: it downloads models into the cache that
// the Hub's Python and JavaScript libraries use too, and it commits files to a repository.
//
// The main type is Client:
//
//	options, err := hub.FromEnvironment(os.LookupEnv) // HF_TOKEN, HF_HOME, HF_ENDPOINT, …
//	client, err := hub.New(options)
//	got, err := client.Snapshot(ctx, "org/name", hub.SnapshotOptions{Revision: "main"})
//	// got.Dir holds the files of got.Commit
//	commit, err := client.Upload(ctx, "org/name", files, hub.UploadOptions{Message: "step 100"})
//
// # Downloads
//
// A branch or tag is resolved to a commit once, and everything else is asked of that
// commit, so that no snapshot is a mixture of two. The tree of the commit says which
// files there are, their sizes and their hashes; every byte that arrives is checked
// against them (SHA-256 for large files, the Git blob id for the others) before it gets
// its place in the cache. What was interrupted goes on where it stopped. The token goes
// to the Hub's own host and nowhere else, whatever the Hub redirects to.
//
// Options.Datasets makes a client of data sets, whose addresses and folders differ by a word.
//
// # The cache
//
//	models--org--name/blobs/<hash>             content
//	models--org--name/blobs/<hash>.incomplete  content on its way
//	models--org--name/snapshots/<commit>/path  relative link to a blob
//	models--org--name/refs/<branch>            commit, as text
//	models--org--name/trees/<commit>.json      what the commit has, to know what is missing offline
//	.locks/models--org--name/<hash>.lock       held (flock) while a blob is written
//
// # Uploads
//
// Large files go to the LFS storage that the Hub names, in one piece or in parts; the
// commit names the commit that it builds upon, so that of two writers one is refused
// (ErrConflict) and nothing is overwritten unseen. Files that the repository has already
// are not sent again, and when nothing differs there is no commit.
//
// Package hubtest is a server that speaks the same protocol, for tests.
package hub
