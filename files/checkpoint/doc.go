// Package checkpoint represents a model in three forms: as a value (Snapshot), as a folder that
// Hugging Face transformers loads (WriteDir, ReadDir), and as a list of hashes from which peers
// assemble it (Manifest).
//
//	snapshot, err := checkpoint.ReadDir(dir)
//	digest := snapshot.Manifest().Digest()
//	err = checkpoint.WriteDir(other, snapshot)
//
// A member of a run takes a Snapshot of its model. At the end of an epoch, members compare the
// BLAKE3 digest of its Manifest. A joining client downloads the manifest by that digest, then every
// file and tensor by the hashes in it. Assemble returns the same snapshot, verified.
//
// The folder has config.json, tokenizer files and model.safetensors, or shards of at most 5 GiB
// with model.safetensors.index.json. It appears atomically, and can replace only an older
// checkpoint. An additional file, psyche.json (Facts), names the run, and the step and data index
// from which another run can continue.
package checkpoint
