//go:build !linux

package torch

func checkAddressSpace(string) error { return nil }

func addressSpaceLimit() uint64 { return 0 }
