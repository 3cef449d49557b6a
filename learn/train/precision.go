package train

import (
	"context"
	"errors"
	"log/slog"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/learn/torch"
)

// precisionOf returns a type's name in package audit.
func precisionOf(t torch.DType) audit.Precision {
	if t == torch.BF16 {
		return audit.BF16
	}
	return audit.F32
}

func typeOf(p audit.Precision) torch.DType {
	if p == audit.BF16 {
		return torch.BF16
	}
	return torch.F32
}

// checkType refuses a type that an engine cannot compute in. It allows bf16 wherever that works,
// because a probe can only estimate its speed.
func checkType(ctx context.Context, log *slog.Logger, engine *torch.Engine, dtype torch.DType) error {
	if dtype != torch.BF16 {
		return nil
	}
	err := engine.CheckBF16(ctx)
	if errors.Is(err, torch.ErrSlowType) {
		log.Warn("computing in bf16, which may be slower than f32 here", "because", err)
		return nil
	}
	return err
}
