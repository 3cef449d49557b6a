// Package handover obtains the model that an epoch starts from, and shares it.
//
// Models has what this client holds and hands over. An Attempt gets one model, from the
// first of its sources that gives exactly the bits that the run's digest names:
//
//   - memory: the parts that are still here;
//   - disk.go: the client's own checkpoint folder;
//   - results.go: an earlier model that is here, and the results that were counted since,
//     where these are fewer bytes;
//   - peers.go: the members that hold it, manifest first, then every tensor and file from
//     any of them;
//   - archive.go: places that members reported, or that the user knows;
//   - or where the run began, for a model that members do not hand over.
//
// An attempt runs beside the loop of a client and changes nothing but itself.
package handover
