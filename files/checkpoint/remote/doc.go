// Package remote keeps checkpoints of a run where its members can find them when nobody
// is there to ask: in a repository of the Hugging Face Hub (HubRepo), or in an object store
// (Bucket).
//
// A Place is read by clients that join and written by those that save. Uploader writes to it in the
// background: each checkpoint that is saved is offered to it, the newest is uploaded, and
// Close waits for the last one. What an interrupted process did not upload is taken up by
// the next one of the same run, if it uploads to the same place.
//
//	uploader := remote.NewUploader(remote.HubRepo{…}, runID, checkpointDir, logger, tellTheRun)
//	uploader.Offer(dir, facts) // whenever a checkpoint was saved
//	err := uploader.Close(ctx) // waits until ctx is done
package remote
