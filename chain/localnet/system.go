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

func (n *nativeCall) system() error {
	kind := n.data.u32()
	switch kind {
	case systemCreate, systemCreateWithSeed:
		return n.create(kind)
	case systemTransfer:
		lamports := n.data.u64()
		if err := n.ready(2); err != nil {
			return err
		}
		return n.transfer(n.accounts[0], n.accounts[0], n.accounts[1], lamports)
	case systemTransferWithSeed:
		return n.transferWithSeed()
	case systemAssign, systemAllocate:
		return n.prepare(kind == systemAllocate)
	case systemAllocateWithSeed, systemAssignWithSeed:
		return n.prepareWithSeed(kind == systemAllocateWithSeed)
	}
	return runtime.ErrInvalidInstructionData
}

// ready returns an error unless the data is complete and there are enough accounts.
func (n *nativeCall) ready(accounts int) error {
	if n.data.missing {
		return runtime.ErrInvalidInstructionData
	}
	return n.has(accounts)
}

func (n *nativeCall) create(kind uint32) error {
	var base transaction.PublicKey
	var seed string
	if kind == systemCreateWithSeed {
		base, seed = n.data.key(), n.data.text()
	}
	lamports, space, owner := n.data.u64(), n.data.u64(), n.data.key()
	if err := n.ready(2); err != nil {
		return err
	}
	from, to := n.accounts[0], n.accounts[1]
	at := address{to.Key, to.Key}
	if kind == systemCreateWithSeed {
		var err error
		if at, err = n.seeded(to, base, seed, owner); err != nil {
			return err
		}
	}
	if to.Lamports > 0 {
		n.logf("Create Account: account Address { address: %s, base: %s } already in use", at.key, n.base(at))
		return runtime.Custom(systemInUse)
	}
	if err := n.allocate(to, at, space); err != nil {
		return err
	}
	if err := n.assign(to, at, owner); err != nil {
		return err
	}
	return n.transfer(from, from, to, lamports)
}

// base returns the name in logs of the account that signs for an address.
func (n *nativeCall) base(at address) string {
	if at.key == at.signer {
		return "None"
	}
	return "Some(" + at.signer.String() + ")"
}

// seeded returns an error unless an account is at the address that base derives from a seed.
func (n *nativeCall) seeded(account *runtime.Account, base transaction.PublicKey, seed string, owner transaction.PublicKey) (address, error) {
	derived, err := transaction.CreateWithSeed(base, seed, owner)
	if err != nil {
		return address{}, runtime.ErrMaxSeedLength
	}
	if derived != account.Key {
		n.logf("Create: address %s does not match derived address %s", transaction.PublicKey(account.Key), derived)
		return address{}, runtime.Custom(systemSeedMismatch)
	}
	return address{account.Key, base}, nil
}

// signed reports whether a key signs, as one of the instruction's accounts.
func (n *nativeCall) signed(key transaction.PublicKey) bool {
	return slices.ContainsFunc(n.accounts, func(a *runtime.Account) bool { return a.Key == key && a.Signer })
}

func (n *nativeCall) allocate(to *runtime.Account, at address, space uint64) error {
	switch {
	case !n.signed(at.signer):
		n.logf("Allocate: 'to' account Address { address: %s, base: %s } must sign", at.key, n.base(at))
		return runtime.ErrMissingSignature
	case len(to.Data) > 0 || to.Owner != transaction.SystemProgram:
		n.logf("Allocate: account Address { address: %s, base: %s } already in use", at.key, n.base(at))
		return runtime.Custom(systemInUse)
	case space > runtime.MaxAccountSize:
		n.logf("Allocate: requested %d, max allowed %d", space, runtime.MaxAccountSize)
		return runtime.Custom(systemLength)
	case !to.Writable: // even if it has that size already
		return runtime.ErrReadonlyData
	}
	return to.SetData(transaction.SystemProgram, make([]byte, space))
}

func (n *nativeCall) assign(account *runtime.Account, at address, owner transaction.PublicKey) error {
	if account.Owner == owner {
		return nil
	}
	if !n.signed(at.signer) {
		n.logf("Assign: account Address { address: %s, base: %s } must sign", at.key, n.base(at))
		return runtime.ErrMissingSignature
	}
	return account.SetOwner(transaction.SystemProgram, owner)
}

// transfer moves lamports from an account for which signer signs.
func (n *nativeCall) transfer(signer, from, to *runtime.Account, lamports uint64) error {
	switch {
	case !signer.Signer:
		n.logf("Transfer: `from` account %s must sign", transaction.PublicKey(signer.Key))
		return runtime.ErrMissingSignature
	case len(from.Data) > 0:
		n.log("Transfer: `from` must not carry data")
		return runtime.ErrInvalidArgument
	case lamports > from.Lamports:
		n.logf("Transfer: insufficient lamports %d, need %d", from.Lamports, lamports)
		return runtime.Custom(systemNoLamports)
	}
	if err := from.SetLamports(transaction.SystemProgram, from.Lamports-lamports); err != nil {
		return err
	}
	if to.Lamports+lamports < lamports {
		return runtime.ErrArithmeticOverflow
	}
	return to.SetLamports(transaction.SystemProgram, to.Lamports+lamports)
}

func (n *nativeCall) transferWithSeed() error {
	lamports, seed, owner := n.data.u64(), n.data.text(), n.data.key()
	if err := n.ready(3); err != nil {
		return err
	}
	from, base, to := n.accounts[0], n.accounts[1], n.accounts[2]
	if !base.Signer {
		n.logf("Transfer: 'from' account %s must sign", transaction.PublicKey(base.Key))
		return runtime.ErrMissingSignature
	}
	if _, err := n.seeded(from, base.Key, seed, owner); err != nil {
		return err
	}
	return n.transfer(base, from, to, lamports)
}

// prepare sets the size or the owner of an account.
func (n *nativeCall) prepare(allocates bool) error {
	var space uint64
	var owner transaction.PublicKey
	if allocates {
		space = n.data.u64()
	} else {
		owner = n.data.key()
	}
	if err := n.ready(1); err != nil {
		return err
	}
	account := n.accounts[0]
	if at := (address{account.Key, account.Key}); allocates {
		return n.allocate(account, at, space)
	} else {
		return n.assign(account, at, owner)
	}
}

// prepareWithSeed sets the owner, and before it the size, of an account that base derives from a
// seed.
func (n *nativeCall) prepareWithSeed(allocates bool) error {
	base, seed := n.data.key(), n.data.text()
	var space uint64
	if allocates {
		space = n.data.u64()
	}
	owner := n.data.key()
	if err := n.ready(1); err != nil {
		return err
	}
	account := n.accounts[0]
	at, err := n.seeded(account, base, seed, owner)
	if err != nil {
		return err
	}
	if allocates {
		if err := n.allocate(account, at, space); err != nil {
			return err
		}
	}
	return n.assign(account, at, owner)
}
