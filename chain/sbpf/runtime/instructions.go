package runtime

// InstructionsAddress is the sysvar with the instructions of a program's transaction.
var InstructionsAddress = [32]byte{
	0x06, 0xa7, 0xd5, 0x17, 0x18, 0x7b, 0xd1, 0x66, 0x35, 0xda, 0xd4, 0x04, 0x55, 0xfd, 0xc2, 0xc0,
	0xc1, 0x24, 0xc6, 0x8f, 0x21, 0x56, 0x75, 0xa5, 0xdb, 0xba, 0xcb, 0x5f, 0x08, 0x00, 0x00, 0x00,
}

// Instruction is an instruction of a transaction.
type Instruction struct {
	Program  [32]byte
	Accounts []*Account
	Data     []byte
}

// InstructionsBytes returns the sysvar for the instruction with the number current.
func InstructionsBytes(all []Instruction, current int) []byte {
	b := le.AppendUint16(nil, uint16(len(all)))
	b = append(b, make([]byte, 2*len(all))...)
	for i, in := range all {
		le.PutUint16(b[2+2*i:], uint16(len(b)))
		b = le.AppendUint16(b, uint16(len(in.Accounts)))
		for _, a := range in.Accounts {
			var flags byte
			if a.Signer {
				flags |= 1
			}
			if a.Writable {
				flags |= 2
			}
			b = append(append(b, flags), a.Key[:]...)
		}
		b = append(b, in.Program[:]...)
		b = append(le.AppendUint16(b, uint16(len(in.Data))), in.Data...)
	}
	return le.AppendUint16(b, uint16(current))
}
