// Package modelsource gets models that no member of a run shares: the run's initial model, or the newest model after all
// its holders have left. A [Source] reads the folders, repositories and buckets that the user names. If the user permits
// it, the Source also reads locations that the run or its members name. [Hosted] downloads the initial model from the
// run's server.
package modelsource
