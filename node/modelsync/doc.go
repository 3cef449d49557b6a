// Package modelsync implements model sync: it obtains the model that an epoch starts from, and
// shares it with peers.
//
// Models contains the models that this client holds and serves. An Attempt gets one model. It asks
// its sources one after the other, and takes the first model with the digest that the run recorded:
//
//   - memory: the model itself, or a copy of it, if this client still has it;
//   - disk.go: the client's own checkpoint folder;
//   - results.go: an earlier model that this client has, and the results counted since then, if
//     these are fewer bytes than the model;
//   - peers.go: members that hold it: first the manifest, then every tensor and file from any of
//     them;
//   - archive.go: locations that members reported, or that the user configured;
//   - the run's initial source, as long as the run has recorded no other model.
//
// An attempt runs concurrently with the loop of a client and changes only its own fields. The loop
// takes over its result with Models.End.
package modelsync
