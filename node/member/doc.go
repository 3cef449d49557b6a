// Package member connects a node with its trainer.
//
// A node (package client) uses a trainer through the interfaces of package node/env, and does not
// load libtorch. A trainer (package train) does not use the network. A Factory creates the trainer
// that a run requires, from package train or, for tests of the network, from learn/train/dummy, and
// opens the run's data:
//
//	factory := member.NewFactory(member.Options{…})
//	node, err := client.New(client.Options{NewTrainer: factory.Build, Data: factory.Data(), …})
//	…
//	err = factory.Close()
//
// Build returns a Trainer, or a Learner if the optimizer cannot be audited. Both can save their
// momentum for the next process, and report when they need the model, so that other code can use it
// in between.
package member
