package localnet

import (
	"github.com/psyche-go/psyche/chain/sbpf/runtime"
	"github.com/psyche-go/psyche/chain/transaction"
	"slices"
)

// Instructions of the system program. The instructions for nonces are not implemented.
const (
	systemCreate           = 0
	systemAssign           = 1
	systemTransfer         = 2
	systemCreateWithSeed   = 3
	systemAllocate         = 8
	systemAllocateWithSeed = 9
	systemAssignWithSeed   = 10
	systemTransferWithSeed = 11
)

// Errors of the system program.
const (
	systemInUse        = 0
	systemNoLamports   = 1
	systemLength       = 3
	systemSeedMismatch = 5
)

// address is an account's address with the key that signs for it.
type address struct {
	key, signer transaction.PublicKey
}

func (n *nativeCall) system() {
	switch kind := n.data.u32(); kind {
	case systemCreate, systemCreateWithSeed:
		n.create(kind)
	case systemTransfer:
		lamports := n.data.u64()
		n.ready(2)
		n.transfer(n.accounts[0], n.accounts[0], n.accounts[1], lamports)
	case systemTransferWithSeed:
		n.transferWithSeed()
	case systemAssign, systemAllocate:
		n.prepare(kind == systemAllocate)
	case systemAllocateWithSeed, systemAssignWithSeed:
		n.prepareWithSeed(kind == systemAllocateWithSeed)
	default:
		refuse(runtime.ErrInvalidInstructionData)
	}
}

// ready refuses an instruction without complete data or enough accounts.
func (n *nativeCall) ready(accounts int) {
	if n.data.missing {
		refuse(runtime.ErrInvalidInstructionData)
	}
	n.has(accounts)
}

func (n *nativeCall) create(kind uint32) {
	var base transaction.PublicKey
	var seed string
	if kind == systemCreateWithSeed {
		base, seed = n.data.key(), n.data.text()
	}
	lamports, space, owner := n.data.u64(), n.data.u64(), n.data.key()
	n.ready(2)
	from, to := n.accounts[0], n.accounts[1]
	at := address{to.Key, to.Key}
	if kind == systemCreateWithSeed {
		at = n.seeded(to, base, seed, owner)
	}
	if to.Lamports > 0 {
		n.refusef(runtime.Custom(systemInUse), "Create Account: account Address { address: %s, base: %s } already in use", at.key, n.base(at))
	}
	n.allocate(to, at, space)
	n.assign(to, at, owner)
	n.transfer(from, from, to, lamports)
}

// base returns the name in logs of the account that signs for an address.
func (n *nativeCall) base(at address) string {
	if at.key == at.signer {
		return "None"
	}
	return "Some(" + at.signer.String() + ")"
}

// seeded returns the address of an account, and refuses the instruction unless base and seed derive
// this address.
func (n *nativeCall) seeded(account *runtime.Account, base transaction.PublicKey, seed string, owner transaction.PublicKey) address {
	derived, err := transaction.CreateWithSeed(base, seed, owner)
	if err != nil {
		refuse(runtime.ErrMaxSeedLength)
	}
	if derived != account.Key {
		n.refusef(runtime.Custom(systemSeedMismatch), "Create: address %s does not match derived address %s", transaction.PublicKey(account.Key), derived)
	}
	return address{account.Key, base}
}

// signed reports whether a key signs, as one of the instruction's accounts.
func (n *nativeCall) signed(key transaction.PublicKey) bool {
	return slices.ContainsFunc(n.accounts, func(a *runtime.Account) bool { return a.Key == key && a.Signer })
}

func (n *nativeCall) allocate(to *runtime.Account, at address, space uint64) {
	switch {
	case !n.signed(at.signer):
		n.refusef(runtime.ErrMissingSignature, "Allocate: 'to' account Address { address: %s, base: %s } must sign", at.key, n.base(at))
	case len(to.Data) > 0 || to.Owner != transaction.SystemProgram:
		n.refusef(runtime.Custom(systemInUse), "Allocate: account Address { address: %s, base: %s } already in use", at.key, n.base(at))
	case space > runtime.MaxAccountSize:
		n.refusef(runtime.Custom(systemLength), "Allocate: requested %d, max allowed %d", space, runtime.MaxAccountSize)
	case !to.Writable: // even if it has that size already
		refuse(runtime.ErrReadonlyData)
	}
	n.must(to.SetData(transaction.SystemProgram, make([]byte, space)))
}

func (n *nativeCall) assign(account *runtime.Account, at address, owner transaction.PublicKey) {
	if account.Owner == owner {
		return
	}
	if !n.signed(at.signer) {
		n.refusef(runtime.ErrMissingSignature, "Assign: account Address { address: %s, base: %s } must sign", at.key, n.base(at))
	}
	n.must(account.SetOwner(transaction.SystemProgram, owner))
}

// transfer moves lamports from an account for which signer signs.
func (n *nativeCall) transfer(signer, from, to *runtime.Account, lamports uint64) {
	switch {
	case !signer.Signer:
		n.refusef(runtime.ErrMissingSignature, "Transfer: `from` account %s must sign", transaction.PublicKey(signer.Key))
	case len(from.Data) > 0:
		n.refusef(runtime.ErrInvalidArgument, "Transfer: `from` must not carry data")
	case lamports > from.Lamports:
		n.refusef(runtime.Custom(systemNoLamports), "Transfer: insufficient lamports %d, need %d", from.Lamports, lamports)
	}
	n.must(from.SetLamports(transaction.SystemProgram, from.Lamports-lamports))
	if to.Lamports+lamports < lamports {
		refuse(runtime.ErrArithmeticOverflow)
	}
	n.must(to.SetLamports(transaction.SystemProgram, to.Lamports+lamports))
}

func (n *nativeCall) transferWithSeed() {
	lamports, seed, owner := n.data.u64(), n.data.text(), n.data.key()
	n.ready(3)
	from, base, to := n.accounts[0], n.accounts[1], n.accounts[2]
	if !base.Signer {
		n.refusef(runtime.ErrMissingSignature, "Transfer: 'from' account %s must sign", transaction.PublicKey(base.Key))
	}
	n.seeded(from, base.Key, seed, owner)
	n.transfer(base, from, to, lamports)
}

// prepare sets the size or the owner of an account.
func (n *nativeCall) prepare(allocates bool) {
	var space uint64
	var owner transaction.PublicKey
	if allocates {
		space = n.data.u64()
	} else {
		owner = n.data.key()
	}
	n.ready(1)
	account := n.accounts[0]
	if at := (address{account.Key, account.Key}); allocates {
		n.allocate(account, at, space)
	} else {
		n.assign(account, at, owner)
	}
}

// prepareWithSeed sets the owner, and before it the size, of an account that base derives from a
// seed.
func (n *nativeCall) prepareWithSeed(allocates bool) {
	base, seed := n.data.key(), n.data.text()
	var space uint64
	if allocates {
		space = n.data.u64()
	}
	owner := n.data.key()
	n.ready(1)
	account := n.accounts[0]
	at := n.seeded(account, base, seed, owner)
	if allocates {
		n.allocate(account, at, space)
	}
	n.assign(account, at, owner)
}
