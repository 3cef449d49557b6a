package main

type tableCommand struct{}

// Run prints.
func (c *tableCommand) Run() error { return nil }
