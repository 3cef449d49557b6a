package localnet

import (
	"math"

	"github.com/psyche-go/psyche/chain/sbpf"
	"github.com/psyche-go/psyche/chain/sbpf/runtime"
	"github.com/psyche-go/psyche/chain/transaction"
)

// Account is an account after some transaction. It is immutable.
type Account struct {
	Owner      transaction.PublicKey
	Lamports   uint64
	Data       []byte
	Executable bool

	program *sbpf.Program // loaded from the image in Data
}

// rentEpoch is the rent epoch of rent-exempt accounts, which all accounts are.
const rentEpoch = math.MaxUint64

// Addresses of the chain itself.
var (
	nativeLoader  = mustKey("NativeLoader1111111111111111111111111111111")
	sysvarProgram = mustKey("Sysvar1111111111111111111111111111111111111")
)

func mustKey(text string) transaction.PublicKey {
	key, err := transaction.ParsePublicKey(text)
	if err != nil {
		panic(err)
	}
	return key
}

// natives are the native programs of the chain.
var natives = map[transaction.PublicKey]string{
	transaction.SystemProgram:        "system_program",
	transaction.ComputeBudgetProgram: "compute_budget_program",
	transaction.LoaderProgram:        "solana_bpf_loader_upgradeable_program",
	transaction.Ed25519Program:       "",
}

// version is the content of an account from a slot on; nil if the account no longer exists.
type version struct {
	slot    uint64
	account *Account
}

// state contains all accounts with their versions, oldest first, starting with the last finalized
// version.
type state map[transaction.PublicKey][]version

// at returns the account as of a slot, and the slot that wrote it.
func (s state) at(key transaction.PublicKey, slot uint64) (*Account, uint64) {
	versions := s[key]
	for i := len(versions) - 1; i >= 0; i-- {
		if v := versions[i]; v.slot <= slot {
			return v.account, v.slot
		}
	}
	return nil, 0
}

// put sets the account from a slot on. That slot must be the newest. put drops versions that are not
// visible in any slot from oldest on.
func (s state) put(key transaction.PublicKey, slot, oldest uint64, account *Account) {
	versions := s[key]
	if n := len(versions); n > 0 && versions[n-1].slot == slot {
		versions[n-1].account = account
		return
	}
	versions = append(versions, version{slot, account})
	first := 0
	for first+1 < len(versions) && versions[first+1].slot <= oldest {
		first++
	}
	if first > 0 {
		versions = append([]version(nil), versions[first:]...)
	}
	s[key] = versions
}

// drop removes the versions of all slots after the given one.
func (s state) drop(after uint64) {
	for key, versions := range s {
		n := len(versions)
		for n > 0 && versions[n-1].slot > after {
			n--
		}
		if n == 0 {
			delete(s, key)
			continue
		}
		clear(versions[n:])
		s[key] = versions[:n]
	}
}

// isSysvar reports whether an account is computed from the chain's state.
func isSysvar(key transaction.PublicKey) bool {
	return key == transaction.ClockSysvar || key == transaction.RentSysvar || key == transaction.SlotHashesSysvar ||
		key == transaction.InstructionsSysvar
}

// sysvarAccount returns the account of a sysvar, or nil.
func sysvarAccount(key transaction.PublicKey, sysvars *runtime.Sysvars) *Account {
	var data []byte
	switch key {
	case transaction.ClockSysvar:
		data = sysvars.Clock.Bytes()
	case transaction.RentSysvar:
		data = sysvars.Rent.Bytes()
	case transaction.SlotHashesSysvar:
		data = sysvars.SlotHashesBytes()
	default:
		return nil
	}
	return &Account{Owner: sysvarProgram, Lamports: sysvars.Rent.Minimum(len(data)), Data: data}
}
