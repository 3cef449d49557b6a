package runtime

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	programID = [32]byte{1: 1}
	other     = [32]byte{1: 2}
)

func sysvars() *Sysvars {
	s := &Sysvars{Clock: Clock{Slot: 1000, EpochStart: -5, Epoch: 2, LeaderScheduleEpoch: 3, UnixTimestamp: 1_700_000_000}, Rent: DefaultRent}
	for slot := uint64(999); slot > 989; slot-- {
		s.SlotHashes = append(s.SlotHashes, SlotHash{slot, [32]byte{byte(slot)}})
	}
	return s
}

// instruction returns data for the program of testdata/probe.c.
func instruction(command byte, n uint64, rest ...byte) []byte {
	return append(le.AppendUint64([]byte{command}, n), rest...)
}

// mine returns a writable account of the program, changed by change.
func mine(change func(*Account)) *Account {
	a := &Account{Key: [32]byte{7}, Owner: programID, Lamports: 1000, Data: []byte{1, 2, 3, 4, 5}, Writable: true}
	if change != nil {
		change(a)
	}
	return a
}

func yours(change func(*Account)) *Account {
	a := mine(change)
	a.Key, a.Owner = [32]byte{8}, other
	return a
}

func readOnly(a *Account) { a.Writable = false }
func empty(a *Account)    { a.Data = make([]byte, len(a.Data)) }

func TestRules(t *testing.T) {
	p := probe(t)
	for name, test := range map[string]struct {
		accounts []*Account
		data     []byte
		limit    uint64
		want     error
		changed  bool
	}{
		"nothing":                          {data: instruction(0, 0)},
		"custom error":                     {data: instruction(0, 4660), want: Custom(4660)},
		"custom error of zero":             {data: instruction(0, 1<<32), want: Custom(0)},
		"invalid argument":                 {data: instruction(0, 2<<32), want: ErrInvalidArgument},
		"incorrect authority":              {data: instruction(0, 26<<32), want: ErrIncorrectAuthority},
		"an unknown error number":          {data: instruction(0, 27<<32), want: errInvalidError},
		"an error number in both halves":   {data: instruction(0, 2<<32|1), want: errInvalidError},
		"endless":                          {data: instruction(1, 0), want: errNotCompleted},
		"63 calls":                         {data: instruction(2, 61)},
		"64 calls":                         {data: instruction(2, 64), want: errNotCompleted},
		"own data":                         {accounts: []*Account{mine(nil)}, data: instruction(3, 2), changed: true},
		"own data, read-only":              {accounts: []*Account{mine(readOnly)}, data: instruction(3, 2), want: ErrReadonlyData},
		"data of others":                   {accounts: []*Account{yours(nil)}, data: instruction(3, 2), want: ErrExternalData},
		"data of others, read-only":        {accounts: []*Account{yours(readOnly)}, data: instruction(3, 2), want: ErrReadonlyData},
		"behind the data":                  {accounts: []*Account{mine(nil)}, data: instruction(3, 6)},
		"lamports move":                    {accounts: []*Account{mine(nil), yours(nil)}, data: instruction(4, 10), changed: true},
		"lamports of others":               {accounts: []*Account{yours(nil), mine(nil)}, data: instruction(4, 10), want: errExternalLamports},
		"lamports to read-only":            {accounts: []*Account{mine(nil), yours(readOnly)}, data: instruction(4, 10), want: ErrReadonlyLamports},
		"lamports from read-only":          {accounts: []*Account{mine(readOnly), yours(nil)}, data: instruction(4, 10), want: ErrReadonlyLamports},
		"lamports from nothing":            {accounts: []*Account{mine(nil)}, data: instruction(5, 10), want: errUnbalanced},
		"lamports lost":                    {accounts: []*Account{mine(nil)}, data: instruction(5, 1<<64-10), want: errUnbalanced},
		"grows":                            {accounts: []*Account{mine(nil)}, data: instruction(6, 10_240), changed: true},
		"grows too much":                   {accounts: []*Account{mine(nil)}, data: instruction(6, 10_241), want: errInvalidRealloc},
		"grows beyond numbers":             {accounts: []*Account{mine(nil)}, data: instruction(6, 1<<64-6), want: errInvalidRealloc},
		"grows with bytes":                 {accounts: []*Account{mine(nil)}, data: instruction(14, 100), changed: true},
		"others' grows":                    {accounts: []*Account{yours(nil)}, data: instruction(6, 1), want: ErrExternalData},
		"read-only grows":                  {accounts: []*Account{mine(readOnly)}, data: instruction(6, 1), want: ErrReadonlyData},
		"shrinks":                          {accounts: []*Account{mine(nil)}, data: instruction(9, 2), changed: true},
		"given away with data":             {accounts: []*Account{mine(nil)}, data: instruction(7, 1), want: errModifiedOwner},
		"given away empty":                 {accounts: []*Account{mine(empty)}, data: instruction(7, 1), changed: true},
		"given away read-only":             {accounts: []*Account{mine(func(a *Account) { empty(a); readOnly(a) })}, data: instruction(7, 1), want: errModifiedOwner},
		"given away cleared":               {accounts: []*Account{mine(nil)}, data: instruction(8, 1), changed: true},
		"taken":                            {accounts: []*Account{yours(empty)}, data: instruction(7, 3<<8), want: errModifiedOwner},
		"what is not the program's":        {accounts: []*Account{mine(nil)}, data: instruction(10, 1)},
		"emptied":                          {accounts: []*Account{mine(nil), yours(nil)}, data: instruction(13, 1000), changed: true},
		"outside of the input":             {data: instruction(12, 1<<20), want: errNotCompleted},
		"abort":                            {data: instruction(30, 0), want: errNotCompleted},
		"pointer not aligned":              {data: instruction(31, 1), want: errNotCompleted},
		"copy onto itself":                 {data: instruction(32, 4), want: errNotCompleted},
		"copy beside itself":               {data: instruction(32, 8)},
		"log of nowhere":                   {data: instruction(33, 1), want: errNotCompleted},
		"log of nothing":                   {data: instruction(33, 0)},
		"hash of slices not aligned":       {data: instruction(34, 4), want: errNotCompleted},
		"units of a call":                  {data: instruction(20, 5), limit: 150, want: ErrBudget},
		"units of an instruction":          {data: instruction(0, 0), limit: 20, want: errNotCompleted},
		"return of much":                   {data: instruction(25, 1025), want: errNotCompleted},
		"slices of more than there can be": {data: instruction(24, 1<<60), want: errNotCompleted},
	} {
		t.Run(name, func(t *testing.T) {
			before := make([]Account, len(test.accounts))
			for i, a := range test.accounts {
				before[i] = *a
				before[i].Data = bytes.Clone(a.Data)
			}
			limit := test.limit
			if limit == 0 {
				limit = 200_000
			}
			r, err := Invoke(p, sysvars(), programID, test.accounts, test.data, limit)
			if !errors.Is(err, test.want) {
				t.Fatalf("%v, want %v\n%q", err, test.want, r.Logs)
			}
			changed := false
			for i, a := range test.accounts {
				changed = changed || !cmp.Equal(before[i], *a)
			}
			if changed != test.changed || r.Units > limit {
				t.Errorf("changed %v, %d units\n%q", changed, r.Units, r.Logs)
			}
		})
	}
}

// TestDuplicates passes the same account to a program twice.
func TestDuplicates(t *testing.T) {
	a := mine(nil)
	if _, err := Invoke(probe(t), sysvars(), programID, []*Account{a, a}, instruction(4, 10), 10_000); err != nil || a.Lamports != 1000 {
		t.Errorf("got %d %v; want nil error and a.Lamports == 1000", a.Lamports, err)
	}
	b := mine(nil)
	if _, err := Invoke(probe(t), sysvars(), programID, []*Account{a, b}, instruction(4, 10), 10_000); err == nil {
		t.Error("two accounts of one key")
	}
}

func TestLogs(t *testing.T) {
	const id = "1tJ93RwaVfE1PEMxd5rpZZuPtLCwbEaDCrNBhAy8Cw"
	r, err := Invoke(probe(t), sysvars(), programID, nil, instruction(24, 2), 1000)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Program " + id + " invoke [1]", "Program data: cHN5Y2hl AgAAAAAAAAA=",
		"Program " + id + " consumed 388 of 1000 compute units", "Program " + id + " success",
	}
	if !slices.Equal(r.Logs, want) || len(r.Data) != 2 || string(r.Data[0]) != "psyche" || !bytes.Equal(r.Data[1], []byte{2, 0, 0, 0, 0, 0, 0, 0}) {
		t.Errorf("got %q %q; want %q and len(r.Data) == 2 and string(r.Data[0]) == \"psyche\" and []byte{2, 0, 0, 0, 0, 0, 0, 0}", r.Logs, r.Data, want)
	}
}
