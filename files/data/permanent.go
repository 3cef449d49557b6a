package data

import (
	"errors"

	"github.com/psyche-go/psyche/files/data/preprocessed"
	"github.com/psyche-go/psyche/files/data/tokens"
	"github.com/psyche-go/psyche/files/data/web"
)

// permanent are the errors after which a location is of no use any more.
var permanent = []error{tokens.ErrTokenRange, tokens.ErrChanged, web.ErrNoRange, preprocessed.ErrInvalid, ErrOtherData, ErrUnusable}

// IsPermanent reports whether an error of Provider.Batch says that the data itself is
// wrong, in every location that the run names, so that reading it again fails the same way.
func IsPermanent(err error) bool {
	for _, target := range permanent {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
