package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/psyche-go/psyche/files/checkpoint/remote"
	"github.com/psyche-go/psyche/files/hub"
)

// modelFolder returns the folder of the model of --model: the given folder, or the download of
// OWNER/NAME from the Hugging Face Hub, with the user's token. If a folder with this name exists,
// it is used.
func modelFolder(ctx context.Context, t terminal, name string) (string, error) {
	info, err := os.Stat(name)
	if err == nil && info.IsDir() {
		return name, nil
	}
	if err == nil {
		return "", usageError{fmt.Errorf("--model %s: not a folder", name)}
	}
	if strings.Count(name, "/") != 1 || hub.CheckRepo(name) != nil {
		return "", usageError{fmt.Errorf("--model %s: no such file or folder, and not OWNER/NAME of a Hugging Face Hub repository", name)}
	}
	client, err := hubFlags{HubMaxConcurrentDownloads: 3}.client(t.logger(), true)
	if err != nil {
		return "", fmt.Errorf("--model %s: %w", name, err)
	}
	dir, err := remote.HubRepo{Client: client, Repo: name}.Download(ctx, printProgress(t))
	if err != nil {
		return "", fmt.Errorf("--model %s: no such folder on this machine; the Hub reports: %w", name, err)
	}
	return dir, nil
}
