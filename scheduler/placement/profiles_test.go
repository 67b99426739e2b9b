// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// shipped is what a profile of deploy/scheduler says, as far as it matters here.
type shipped struct {
	Profiles []struct {
		Plugins struct {
			Score struct {
				Disabled []struct{ Name string }
			}
		}
		PluginConfig []struct {
			Name string
			Args runtime.RawExtension
		}
	}
}

// Without a table nothing would look at resources where the default's scorers of these are off.
func TestProfiles_WhoSwitchesResourceScorersOffHasAFallback(t *testing.T) {
	files, err := filepath.Glob("../../deploy/scheduler/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d profiles, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var found shipped
			if err := yaml.Unmarshal(text, &found); err != nil {
				t.Fatal(err)
			}
			wanted := NoFallback
			for _, off := range found.Profiles[0].Plugins.Score.Disabled {
				if off.Name == "NodeResourcesFit" || off.Name == "*" {
					wanted = LeastAllocated
				}
			}
			for _, plugin := range found.Profiles[0].PluginConfig {
				if plugin.Name != Name {
					continue
				}
				args, err := ReadArgs(&runtime.Unknown{Raw: plugin.Args.Raw})
				if err != nil || args.Fallback != wanted {
					t.Fatalf("fallback %q instead of %q, %v", args.Fallback, wanted, err)
				}
				return
			}
			t.Fatal("the plugin has no arguments")
		})
	}
}
