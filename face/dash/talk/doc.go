// Package talk lets the readers of a page talk to a model that psyche-client serve-model serves.
//
// The page's server passes on one request at a time, and only texts: a reader chooses neither the number of tokens nor
// any other option. The package assumes that a reader may be hostile. Readers may send as many requests as they like, of
// any size and at any speed, may disconnect at any time, and may use the browser of another reader. They can then
// occupy the model, but neither keep other networks out nor make the model compute more than one bounded answer at a
// time. The model's texts may be hostile too: they contain no control characters, and pages insert them as text.
//
// The page's server does not authenticate serve-model. If serve-model does not run, another user of its machine can listen
// on its port, and then gets the API key and the readers' texts, and answers them.
package talk
