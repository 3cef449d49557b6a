//go:build !unix

package main

import "syscall"

// ownGroup is nothing here.
func ownGroup() *syscall.SysProcAttr { return nil }
