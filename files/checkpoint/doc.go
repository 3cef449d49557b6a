// Package checkpoint holds a model as a value (Snapshot), as a folder that Hugging Face
// transformers loads (WriteDir, ReadDir), and as a list of hashes from which peers
// assemble it (Manifest).
//
// A member of a run takes a Snapshot of its model; the BLAKE3 digest of the snapshot's
// Manifest is what members compare at the end of an epoch. A joining client fetches
// the manifest by that digest, then every file and tensor by the hashes in it, and
// Assemble gives the same snapshot back, verified.
//
// The folder holds config.json, tokenizer files and model.safetensors, or shards of at
// most 5 GiB with model.safetensors.index.json. It is put in place in one step, and
// nothing but an older checkpoint is ever replaced. Beside them lies psyche.json (Facts):
// the run, and the step and data index at which another run can go on.
package checkpoint
