package runtime

// Limits of accounts.
const (
	MaxAccountSize = 10 << 20
	maxIncrease    = 10_240 // of an account's data by one instruction
	maxAccounts    = 255
	maxLoaded      = 64 << 20 // of all accounts of a transaction
)

// Offsets of the fields in an account's head.
const (
	headSize     = 88
	headKey      = 8
	headOwner    = headKey + 32
	headLamports = headOwner + 32
	notDuplicate = 0xff
)

// input is a program's input: its accounts, the data of the instruction, its own id.
type input struct {
	bytes  []byte
	places []place
}

// place is an account's position in the input.
type place struct {
	first                 int // index of the first account of the instruction with this key
	owner, lamports, data int
}

// serialize encodes an input as the chain's loader does.
func serialize(id [32]byte, accounts []*Account, data []byte) *input {
	in := &input{places: make([]place, len(accounts))}
	size := 8 + 8 + len(data) + len(id)
	for _, a := range accounts {
		size += headSize + len(a.Data) + maxIncrease + 16
	}
	b := le.AppendUint64(make([]byte, 0, size), uint64(len(accounts)))
	first := map[*Account]int{}
	for i, a := range accounts {
		if f, found := first[a]; found {
			in.places[i].first = f
			b = append(b, byte(f), 0, 0, 0, 0, 0, 0, 0)
			continue
		}
		first[a] = i
		at := len(b)
		in.places[i] = place{i, at + headOwner, at + headLamports, at + headSize}
		b = append(b, notDuplicate, bit(a.Signer), bit(a.Writable), bit(a.Executable), 0, 0, 0, 0)
		b = append(append(b, a.Key[:]...), a.Owner[:]...)
		b = le.AppendUint64(le.AppendUint64(b, a.Lamports), uint64(len(a.Data)))
		b = append(b, a.Data...)
		spare := maxIncrease + (8-len(a.Data)%8)%8
		b = b[:len(b)+spare]
		b = le.AppendUint64(b, a.RentEpoch)
	}
	b = append(le.AppendUint64(b, uint64(len(data))), data...)
	in.bytes = append(b, id[:]...)
	return in
}

func bit(v bool) byte {
	if v {
		return 1
	}
	return 0
}
