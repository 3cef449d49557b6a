package main

type tableCommand struct{}

func (c *tableCommand) Run() error { return nil }

type costCommand struct{}

func (c *costCommand) Run() error { return nil }

type valuesCommand struct{}

func (c *valuesCommand) Run() error { return nil }
