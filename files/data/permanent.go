package data

import (
	"errors"
	"slices"

	"github.com/psyche-go/psyche/files/data/preprocessed"
	"github.com/psyche-go/psyche/files/data/tokens"
	"github.com/psyche-go/psyche/files/data/web"
)

// permanent contains the errors after which a location is not usable any more.
var permanent = []error{tokens.ErrTokenRange, tokens.ErrChanged, web.ErrNoRange, preprocessed.ErrInvalid, ErrOtherData, ErrUnusable}

// IsPermanent reports whether an error of Provider.Batch means that the data itself is wrong in
// every location of the run, so that a retry fails in the same way.
func IsPermanent(err error) bool {
	return slices.ContainsFunc(permanent, func(target error) bool { return errors.Is(err, target) })
}
