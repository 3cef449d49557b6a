package localnet

import (
	"bytes"

	"github.com/psyche-go/psyche/chain/sbpf"
	"github.com/psyche-go/psyche/chain/sbpf/runtime"
	"github.com/psyche-go/psyche/chain/transaction"
)

// Instructions of the upgradeable loader. The instructions to extend or move programs are not
// implemented.
const (
	loaderInitialize   = 0
	loaderWrite        = 1
	loaderDeploy       = 2
	loaderUpgrade      = 3
	loaderSetAuthority = 4
	loaderClose        = 5
)

// Kinds of accounts of the loader: the first four bytes of their data.
const (
	loaderNothing = iota
	loaderBuffer
	loaderProgram
	loaderProgramData
)

// Offsets of the authority of a buffer and of a program's data: a byte 1, then the key.
const (
	bufferAuthority  = 4
	programAuthority = 12
)

func (n *nativeCall) loader() error {
	switch n.data.u32() {
	case loaderInitialize:
		return n.initializeBuffer()
	case loaderWrite:
		return n.write()
	case loaderDeploy:
		return n.deploy()
	case loaderUpgrade:
		return n.upgrade()
	case loaderSetAuthority:
		return n.setAuthority()
	case loaderClose:
		return n.close()
	}
	return runtime.ErrInvalidInstructionData
}

// kind returns the kind of an account of the loader.
func kind(a *runtime.Account) (uint32, error) {
	if len(a.Data) < 4 {
		return 0, runtime.ErrInvalidAccountData
	}
	complete := false
	k := le.Uint32(a.Data)
	switch k {
	case loaderNothing:
		complete = true
	case loaderBuffer:
		complete = hasAuthority(a.Data, bufferAuthority)
	case loaderProgram:
		complete = len(a.Data) >= transaction.ProgramSize
	case loaderProgramData:
		complete = hasAuthority(a.Data, programAuthority)
	}
	if !complete {
		return 0, runtime.ErrInvalidAccountData
	}
	return k, nil
}

// hasAuthority reports whether there is a valid encoding of an authority, or of its absence, at an
// offset.
func hasAuthority(data []byte, at int) bool {
	return len(data) > at && (data[at] == 0 || data[at] == 1 && len(data) >= at+33)
}

// change replaces the account's data with a writable copy.
func (n *nativeCall) change(a *runtime.Account) ([]byte, error) {
	switch {
	case !a.Writable:
		return nil, runtime.ErrReadonlyData
	case a.Owner != transaction.LoaderProgram:
		return nil, runtime.ErrExternalData
	}
	a.Data = bytes.Clone(a.Data)
	return a.Data, nil
}

func (n *nativeCall) initializeBuffer() error {
	if err := n.ready(2); err != nil {
		return err
	}
	buffer, authority := n.accounts[0], n.accounts[1]
	if k, err := kind(buffer); err != nil {
		return err
	} else if k != loaderNothing {
		n.log("Buffer account already initialized")
		return runtime.ErrAlreadyInitialized
	}
	data, err := n.change(buffer)
	if err != nil {
		return err
	}
	if len(data) < transaction.BufferHeader {
		return runtime.ErrAccountDataTooSmall
	}
	le.PutUint32(data, loaderBuffer)
	putAuthority(data, bufferAuthority, authority.Key)
	return nil
}

func putAuthority(data []byte, at int, key transaction.PublicKey) {
	data[at] = 1
	copy(data[at+1:], key[:])
}

// words are the log messages about an authority.
type words struct{ immutable, incorrect, unsigned string }

var (
	ofBuffer  = words{"Buffer is immutable", "Incorrect buffer authority provided", "Buffer authority did not sign"}
	ofProgram = words{"Program not upgradeable", "Incorrect upgrade authority provided", "Upgrade authority did not sign"}
	ofClosed  = words{"Account is immutable", "Incorrect authority provided", "Authority did not sign"}
)

// authorized returns an error unless the account has this authority and the authority signs.
func (n *nativeCall) authorized(a *runtime.Account, at int, authority *runtime.Account, w words) error {
	switch {
	case a.Data[at] == 0:
		n.log(w.immutable)
		return runtime.ErrImmutable
	case !bytes.Equal(a.Data[at+1:at+33], authority.Key[:]):
		n.log(w.incorrect)
		return runtime.ErrIncorrectAuthority
	case !authority.Signer:
		n.log(w.unsigned)
		return runtime.ErrMissingSignature
	}
	return nil
}

func (n *nativeCall) write() error {
	offset := uint64(n.data.u32())
	part := n.data.take(n.data.u64())
	if err := n.ready(2); err != nil {
		return err
	}
	buffer := n.accounts[0]
	if k, err := kind(buffer); err != nil {
		return err
	} else if k != loaderBuffer {
		n.log("Invalid Buffer account")
		return runtime.ErrInvalidAccountData
	}
	if err := n.authorized(buffer, bufferAuthority, n.accounts[1], ofBuffer); err != nil {
		return err
	}
	if offset += transaction.BufferHeader; offset+uint64(len(part)) > uint64(len(buffer.Data)) {
		n.logf("Write overflow: %d < %d", len(buffer.Data), offset+uint64(len(part)))
		return runtime.ErrAccountDataTooSmall
	}
	data, err := n.change(buffer)
	if err != nil {
		return err
	}
	copy(data[offset:], part)
	return nil
}

func (n *nativeCall) setAuthority() error {
	if err := n.ready(2); err != nil {
		return err
	}
	account, authority := n.accounts[0], n.accounts[1]
	at, label := bufferAuthority, ofBuffer
	k, err := kind(account)
	if err != nil {
		return err
	}
	switch k {
	case loaderBuffer:
		if len(n.accounts) < 3 {
			n.log("Buffer authority is not optional")
			return runtime.ErrIncorrectAuthority
		}
	case loaderProgramData:
		at, label = programAuthority, ofProgram
	default:
		n.log("Account does not support authorities")
		return runtime.ErrInvalidArgument
	}
	if err := n.authorized(account, at, authority, label); err != nil {
		return err
	}
	data, err := n.change(account)
	if err != nil {
		return err
	}
	if program, found := n.programOf(account); found {
		n.programs[account.Key] = program
	}
	if len(n.accounts) < 3 {
		data[at] = 0 // the key stays after it, as on the chain
		n.log("New authority None")
		return nil
	}
	putAuthority(data, at, n.accounts[2].Key)
	n.log("New authority Some(" + transaction.PublicKey(n.accounts[2].Key).String() + ")")
	return nil
}

// programOf returns the program in an account of program data.
func (n *nativeCall) programOf(account *runtime.Account) (*sbpf.Program, bool) {
	if p, found := n.programs[account.Key]; found {
		return p, true
	}
	old := n.lookup(account.Key)
	if old == nil || old.program == nil {
		return nil, false
	}
	return old.program, true
}

func (n *nativeCall) close() error {
	if err := n.ready(2); err != nil {
		return err
	}
	account, spill := n.accounts[0], n.accounts[1]
	if account.Key == spill.Key {
		n.log("Recipient is the same as the account being closed")
		return runtime.ErrInvalidArgument
	}
	k, err := kind(account)
	if err != nil {
		return err
	}
	if _, err := n.change(account); err != nil {
		return err
	}
	at, label := 0, "Uninitialized"
	switch k {
	case loaderNothing:
	case loaderBuffer:
		at, label = bufferAuthority, "Buffer"
	case loaderProgramData:
		at, label = programAuthority, "Program"
	default:
		n.log("Account does not support closing")
		return runtime.ErrInvalidArgument
	}
	if k != loaderNothing {
		if err := n.has(3); err != nil {
			return err
		}
		if err := n.authorized(account, at, n.accounts[2], ofClosed); err != nil {
			return err
		}
	}
	if !spill.Writable {
		return runtime.ErrReadonlyLamports
	}
	spill.Lamports += account.Lamports
	account.Lamports, account.Data = 0, make([]byte, 4)
	n.log("Closed " + label + " " + transaction.PublicKey(account.Key).String())
	return nil
}
