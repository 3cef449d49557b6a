package layout

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
)

// Draft contains settings of a run that has an account but no genesis yet. The main authority
// stores it at the end of the staging area. The program does not read it, and the genesis clears
// it.
type Draft struct {
	JoinAuthority     [32]byte // zero: the main authority
	Permissioned      bool
	Name, Description string
}

// Position of a draft in the staging area, and limits of its texts.
const (
	DraftSize   = 400
	DraftOffset = StageSize - DraftSize

	maxDraftName        = 64
	maxDraftDescription = 280

	draftMagic = "psydraft" // at the end of the draft, after the longest genesis
	draftBody  = DraftSize - len(draftMagic) - draftCheck
	draftCheck = 4 // bytes of the body's SHA-256
)

// ErrDraft means that a draft is damaged, for example by an unfinished longer genesis.
var ErrDraft = errors.New("the draft of create-run in the run's account is damaged")

// AppendDraft appends the DraftSize bytes of a draft.
func AppendDraft(b []byte, d Draft) ([]byte, error) {
	if len(d.Name) > maxDraftName || len(d.Description) > maxDraftDescription {
		return nil, fmt.Errorf("draft: the name has %d bytes and the description %d, want at most %d and %d", len(d.Name), len(d.Description), maxDraftName, maxDraftDescription)
	}
	body := make([]byte, 0, draftBody)
	permissioned := byte(0)
	if d.Permissioned {
		permissioned = 1
	}
	body = append(append(body, permissioned), d.JoinAuthority[:]...)
	body = append(append(body, byte(len(d.Name))), d.Name...)
	body = append(le.AppendUint16(body, uint16(len(d.Description))), d.Description...)
	body = body[:draftBody]
	sum := sha256.Sum256(body)
	return append(append(append(b, body...), sum[:draftCheck]...), draftMagic...), nil
}

// ReadDraft parses the last DraftSize bytes of a staging area. It reports false if there is no
// draft, and returns ErrDraft if the draft is damaged.
func ReadDraft(b []byte) (d Draft, found bool, err error) {
	if len(b) != DraftSize || string(b[DraftSize-len(draftMagic):]) != draftMagic {
		return Draft{}, false, nil
	}
	body := b[:draftBody]
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:draftCheck], b[draftBody:draftBody+draftCheck]) {
		return Draft{}, true, fmt.Errorf("%w: wrong check sum", ErrDraft)
	}
	const nameAt = 1 + 32 + 1
	d = Draft{Permissioned: body[0] == 1, JoinAuthority: [32]byte(body[1:])}
	end := nameAt + int(body[nameAt-1])
	if body[0] > 1 || end-nameAt > maxDraftName {
		return Draft{}, true, fmt.Errorf("%w: permissioned %d, name of %d bytes", ErrDraft, body[0], end-nameAt)
	}
	d.Name = string(body[nameAt:end])
	size := int(le.Uint16(body[end:]))
	if end += 2; size > maxDraftDescription {
		return Draft{}, true, fmt.Errorf("%w: description of %d bytes", ErrDraft, size)
	}
	d.Description = string(body[end : end+size])
	return d, true, nil
}
