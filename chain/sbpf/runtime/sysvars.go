package runtime

import (
	"encoding/binary"
	"math"
)

var le = binary.LittleEndian

// Clock is the chain's clock as programs see it.
type Clock struct {
	Slot                uint64
	EpochStart          int64
	Epoch               uint64
	LeaderScheduleEpoch uint64
	UnixTimestamp       int64 // seconds
}

// SlotHash is the hash of a completed slot.
type SlotHash struct {
	Slot uint64
	Hash [32]byte
}

// MaxSlotHashes is the number of slots whose hashes a chain keeps.
const MaxSlotHashes = 512

// Rent defines the minimum balance of an account.
type Rent struct {
	LamportsPerByte uint64
	Threshold       float64
	BurnPercent     uint8
}

// DefaultRent is the rent of the public chains.
var DefaultRent = Rent{LamportsPerByte: 6960, Threshold: 1, BurnPercent: 50}

// accountOverhead is the number of bytes that an account counts in addition to its data.
const accountOverhead = 128

// Minimum returns the minimum balance of an account with size bytes, in lamports.
func (r Rent) Minimum(size int) uint64 {
	return uint64(float64((accountOverhead+uint64(size))*r.LamportsPerByte) * r.Threshold)
}

// Sysvars are the values of the chain that programs can read.
type Sysvars struct {
	Clock      Clock
	SlotHashes []SlotHash // newest first, at most MaxSlotHashes
	Rent       Rent
}

// Addresses of sysvars.
var (
	clockAddress = [32]byte{
		0x06, 0xa7, 0xd5, 0x17, 0x18, 0xc7, 0x74, 0xc9, 0x28, 0x56, 0x63, 0x98, 0x69, 0x1d, 0x5e, 0xb6,
		0x8b, 0x5e, 0xb8, 0xa3, 0x9b, 0x4b, 0x6d, 0x5c, 0x73, 0x55, 0x5b, 0x21, 0x00, 0x00, 0x00, 0x00,
	}
	rentAddress = [32]byte{
		0x06, 0xa7, 0xd5, 0x17, 0x19, 0x2c, 0x5c, 0x51, 0x21, 0x8c, 0xc9, 0x4c, 0x3d, 0x4a, 0xf1, 0x7f,
		0x58, 0xda, 0xee, 0x08, 0x9b, 0xa1, 0xfd, 0x44, 0xe3, 0xdb, 0xd9, 0x8a, 0x00, 0x00, 0x00, 0x00,
	}
	slotHashesAddress = [32]byte{
		0x06, 0xa7, 0xd5, 0x17, 0x19, 0x2f, 0x0a, 0xaf, 0xc6, 0xf2, 0x65, 0xe3, 0xfb, 0x77, 0xcc, 0x7a,
		0xda, 0x82, 0xc5, 0x29, 0xd0, 0xbe, 0x3b, 0x13, 0x6e, 0x2d, 0x00, 0x55, 0x20, 0x00, 0x00, 0x00,
	}
)

// Sizes of sysvars in bytes.
const (
	clockSize      = 40
	slotHashesSize = 8 + MaxSlotHashes*40
)

// Bytes returns the sysvar's encoding for programs.
func (c Clock) Bytes() []byte {
	b := le.AppendUint64(nil, c.Slot)
	b = le.AppendUint64(b, uint64(c.EpochStart))
	b = le.AppendUint64(b, c.Epoch)
	b = le.AppendUint64(b, c.LeaderScheduleEpoch)
	return le.AppendUint64(b, uint64(c.UnixTimestamp))
}

// Bytes returns the sysvar's encoding for programs.
func (r Rent) Bytes() []byte {
	b := le.AppendUint64(nil, r.LamportsPerByte)
	b = le.AppendUint64(b, math.Float64bits(r.Threshold))
	return append(b, r.BurnPercent)
}

// SlotHashesBytes returns the sysvar's encoding for programs, with zeros after the last hash.
func (s *Sysvars) SlotHashesBytes() []byte {
	hashes := s.SlotHashes[:min(len(s.SlotHashes), MaxSlotHashes)]
	b := le.AppendUint64(make([]byte, 0, slotHashesSize), uint64(len(hashes)))
	for _, h := range hashes {
		b = append(le.AppendUint64(b, h.Slot), h.Hash[:]...)
	}
	return b[:slotHashesSize]
}

// bytesOf returns the sysvar at an address, or nil.
func (s *Sysvars) bytesOf(address [32]byte) []byte {
	switch address {
	case clockAddress:
		return s.Clock.Bytes()
	case rentAddress:
		return s.Rent.Bytes()
	case slotHashesAddress:
		return s.SlotHashesBytes()
	}
	return nil
}
