// Package handover obtains the model that an epoch starts from, and shares it.
//
// Models has the models that this client holds, and lets peers fetch them. An Attempt gets one model. It
// asks its sources one after the other, and takes the first model whose digest is the one that the run
// recorded:
//
//   - memory: the model itself, or a copy of it, if this client still has it;
//   - disk.go: the client's own checkpoint folder;
//   - results.go: an earlier model that this client has, and the results that were counted
//     since, where these are fewer bytes than the model;
//   - peers.go: the members that hold it, manifest first, then every tensor and file from
//     any of them;
//   - archive.go: places that members reported, or that the user knows;
//   - or the place where the run began, as long as the run has recorded no other model.
//
// An attempt runs beside the loop of a client, and changes nothing but itself: what it got, the loop
// takes over with Models.End.
package handover
