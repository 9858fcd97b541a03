// Package definition follows the definition of OperatorPolicy where another program owns it, such as the governance
// add-on of Open Cluster Management, which restores its own one: which versions the API server serves, and which fields
// they have. Nothing is written.
package definition
