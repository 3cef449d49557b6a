// Command release builds, signs and tags releases of Psyche.
//
//	go -C tools run ./release build -key KEY -base URL   # archives, packages, checksums, signature and installer
//	go -C tools run ./release key -out KEY               # a new key pair in minisign's format
//	go -C tools run ./release tag                        # tag HEAD with the version; pushes nothing
//
// build writes into build/release. The files depend only on the commit, the Go version, and, for the
// client, on the C compiler and the libtorch of this machine. SHA256SUMS lists all files, and
// SHA256SUMS.minisig signs it. Each archive contains one folder with bin, lib and share, so that its
// contents can be copied into any prefix. The client's archive contains the shared libraries of
// libtorch, but not the C library.
package main
