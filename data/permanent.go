package data

import (
	"errors"

	"github.com/psyche-go/psyche/data/tokens"
)

// IsPermanent reports whether an error of Provider.Sequences says that the data itself is
// wrong, so that reading it again fails the same way.
func IsPermanent(err error) bool { return errors.Is(err, tokens.ErrTokenRange) }
