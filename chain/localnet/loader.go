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

func (n *nativeCall) loader() {
	switch n.data.u32() {
	case loaderInitialize:
		n.initializeBuffer()
	case loaderWrite:
		n.write()
	case loaderDeploy:
		n.deploy()
	case loaderUpgrade:
		n.upgrade()
	case loaderSetAuthority:
		n.setAuthority()
	case loaderClose:
		n.close()
	default:
		refuse(runtime.ErrInvalidInstructionData)
	}
}

// kind returns the kind of an account of the loader.
func (n *nativeCall) kind(a *runtime.Account) uint32 {
	if len(a.Data) < 4 {
		refuse(runtime.ErrInvalidAccountData)
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
		refuse(runtime.ErrInvalidAccountData)
	}
	return k
}

// hasAuthority reports whether there is a valid encoding of an authority, or of its absence, at an
// offset.
func hasAuthority(data []byte, at int) bool {
	return len(data) > at && (data[at] == 0 || data[at] == 1 && len(data) >= at+33)
}

// change replaces the account's data with a writable copy.
func (n *nativeCall) change(a *runtime.Account) []byte {
	switch {
	case !a.Writable:
		refuse(runtime.ErrReadonlyData)
	case a.Owner != transaction.LoaderProgram:
		refuse(runtime.ErrExternalData)
	}
	a.Data = bytes.Clone(a.Data)
	return a.Data
}

func (n *nativeCall) initializeBuffer() {
	n.ready(2)
	buffer, authority := n.accounts[0], n.accounts[1]
	if n.kind(buffer) != loaderNothing {
		n.refusef(runtime.ErrAlreadyInitialized, "Buffer account already initialized")
	}
	data := n.change(buffer)
	if len(data) < transaction.BufferHeader {
		refuse(runtime.ErrAccountDataTooSmall)
	}
	le.PutUint32(data, loaderBuffer)
	putAuthority(data, bufferAuthority, authority.Key)
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

// authorized refuses an instruction unless the account has this authority and the authority signs.
func (n *nativeCall) authorized(a *runtime.Account, at int, authority *runtime.Account, w words) {
	switch {
	case a.Data[at] == 0:
		n.refusef(runtime.ErrImmutable, "%s", w.immutable)
	case !bytes.Equal(a.Data[at+1:at+33], authority.Key[:]):
		n.refusef(runtime.ErrIncorrectAuthority, "%s", w.incorrect)
	case !authority.Signer:
		n.refusef(runtime.ErrMissingSignature, "%s", w.unsigned)
	}
}

func (n *nativeCall) write() {
	offset := uint64(n.data.u32())
	part := n.data.take(n.data.u64())
	n.ready(2)
	buffer := n.accounts[0]
	if n.kind(buffer) != loaderBuffer {
		n.refusef(runtime.ErrInvalidAccountData, "Invalid Buffer account")
	}
	n.authorized(buffer, bufferAuthority, n.accounts[1], ofBuffer)
	if offset += transaction.BufferHeader; offset+uint64(len(part)) > uint64(len(buffer.Data)) {
		n.refusef(runtime.ErrAccountDataTooSmall, "Write overflow: %d < %d", len(buffer.Data), offset+uint64(len(part)))
	}
	copy(n.change(buffer)[offset:], part)
}

func (n *nativeCall) setAuthority() {
	n.ready(2)
	account, authority := n.accounts[0], n.accounts[1]
	at, label := bufferAuthority, ofBuffer
	switch n.kind(account) {
	case loaderBuffer:
		if len(n.accounts) < 3 {
			n.refusef(runtime.ErrIncorrectAuthority, "Buffer authority is not optional")
		}
	case loaderProgramData:
		at, label = programAuthority, ofProgram
	default:
		n.refusef(runtime.ErrInvalidArgument, "Account does not support authorities")
	}
	n.authorized(account, at, authority, label)
	data := n.change(account)
	if program, found := n.programOf(account); found {
		n.programs[account.Key] = program
	}
	if len(n.accounts) < 3 {
		data[at] = 0 // the key stays after it, as on the chain
		n.log("New authority None")
		return
	}
	putAuthority(data, at, n.accounts[2].Key)
	n.log("New authority Some(" + transaction.PublicKey(n.accounts[2].Key).String() + ")")
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

func (n *nativeCall) close() {
	n.ready(2)
	account, spill := n.accounts[0], n.accounts[1]
	if account.Key == spill.Key {
		n.refusef(runtime.ErrInvalidArgument, "Recipient is the same as the account being closed")
	}
	k := n.kind(account)
	n.change(account)
	at, label := 0, "Uninitialized"
	switch k {
	case loaderNothing:
	case loaderBuffer:
		at, label = bufferAuthority, "Buffer"
	case loaderProgramData:
		at, label = programAuthority, "Program"
	default:
		n.refusef(runtime.ErrInvalidArgument, "Account does not support closing")
	}
	if k != loaderNothing {
		n.has(3)
		n.authorized(account, at, n.accounts[2], ofClosed)
	}
	if !spill.Writable {
		refuse(runtime.ErrReadonlyLamports)
	}
	spill.Lamports += account.Lamports
	account.Lamports, account.Data = 0, make([]byte, 4)
	n.log("Closed " + label + " " + transaction.PublicKey(account.Key).String())
}
