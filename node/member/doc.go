// Package member is where a node and its trainer meet.
//
// A node (package client) knows a trainer by the interfaces of package node/env, and loads no
// libtorch; a trainer (package train) knows no network. A Factory makes the trainer that a run
// asks for, of package train or, for tests of the network, learn/train/dummy, and opens the run's data:
//
//	factory := member.NewFactory(member.Options{…})
//	node, err := client.New(client.Options{NewTrainer: factory.Build, Data: factory.Data(), …})
//	…
//	err = factory.Close()
//
// Build returns a Trainer, or a Learner where the optimizer cannot be audited: their momentum can be kept
// for the next process, and they say when they need the model, so that something else can use it meanwhile.
package member
