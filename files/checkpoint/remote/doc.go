// Package remote stores the checkpoints of a run outside the run, for members that cannot get them
// from another member: in a repository of the Hugging Face Hub (HubRepo), or in an object store
// (Bucket).
//
// Joining clients read from these locations, and clients that save checkpoints write to them. An
// Uploader writes in the background: callers offer each saved checkpoint, the Uploader uploads the
// newest one, and Close waits for the last one. If a process is interrupted, the next process of
// the same run continues its uploads, if it uploads to the same location.
//
//	uploader := remote.NewUploader(remote.HubRepo{…}, runID, checkpointDir, logger, tellTheRun)
//	uploader.Offer(dir, facts) // whenever a checkpoint was saved
//	err := uploader.Close(ctx) // waits until ctx is done
package remote
