package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opgate/opgate/e2e/assets/repo"
)

// AlertsFile is the path of the alerts, a rules file of Prometheus.
func AlertsFile(checkout repo.Checkout) string {
	return filepath.Join(checkout.Chart(), "files", "alerts.yaml")
}

// DashboardFile is the path of the dashboard.
func DashboardFile(checkout repo.Checkout) string {
	return filepath.Join(checkout.Chart(), "files", "dashboard.json")
}

// DashboardQueries returns the queries of the dashboard, by the title of the panel.
func DashboardQueries(checkout repo.Checkout) (map[string][]string, error) {
	text, err := os.ReadFile(DashboardFile(checkout))
	if err != nil {
		return nil, err
	}
	var dashboard struct {
		Panels []struct {
			Title   string `json:"title"`
			Type    string `json:"type"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		return nil, fmt.Errorf("read the dashboard: %w", err)
	}
	queries := map[string][]string{}
	for _, panel := range dashboard.Panels {
		if panel.Type == "row" {
			continue
		}
		if len(panel.Targets) == 0 || queries[panel.Title] != nil {
			return nil, fmt.Errorf("panel %q of the dashboard has no query, or the title of another one", panel.Title)
		}
		for _, target := range panel.Targets {
			queries[panel.Title] = append(queries[panel.Title], target.Expr)
		}
	}
	return queries, nil
}
