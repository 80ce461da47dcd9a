package runbooks

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

const docs = "../../docs/runbooks/"

type events = map[string]func(context.Context) error

// The pages are read in this order, in one world: the README builds it, the last one takes it down.
func TestEveryCommandOfTheRunbooks(t *testing.T) {
	w := begin(t)
	t.Run("README", func(t *testing.T) {
		w.read(t, "../../README.md", "Deploying", events{
			"the cluster has three workers": func(ctx context.Context) error {
				for name, address := range map[string]string{"worker-1": "10.0.1.11", "worker-2": "10.0.1.12", "worker-3": "10.0.1.13"} {
					if err := w.join(ctx, name, address, true, nil); err != nil {
						return err
					}
				}
				return nil
			},
			"the cloud is another one": w.otherCloud,
		})
	})
}

// otherCloud has the inventory ask the emulator: the one thing that the README's reader does not do.
func (w *world) otherCloud(ctx context.Context) error {
	if err := os.WriteFile(filepath.Join(w.dir, "cloud-ca.crt"), w.cloudCA, 0o600); err != nil {
		return err
	}
	if err := w.run(ctx, "kubectl --context secured -n slicefeed create configmap cloud-ca --from-file=ca.crt=cloud-ca.crt"); err != nil {
		return err
	}
	if err := w.edit("inventory.yaml", "settings:\n", "ionos: {caConfigMap: cloud-ca}\nsettings:\n  IONOS_API_URL: "+w.cloudURL+"\n"); err != nil {
		return err
	}
	return nil
}
