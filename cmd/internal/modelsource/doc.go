// Package modelsource gets models that no member of a run shares: the run's initial model, and the newest model after all
// members that had it left. A [Source] reads the folders, repositories and buckets that the user, the run and its members
// name, as far as the user permits it, and [Hosted] downloads the initial model from the run's server.
package modelsource
