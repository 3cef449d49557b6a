{
  description = "Psyche: decentralised training of language models";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" ];
      each = f: nixpkgs.lib.genAttrs systems (system: f nixpkgs.legacyPackages.${system});
    in
    {
      # The static program psyche. nixpkgs must contain Go 1.26 or newer.
      packages = each (pkgs: {
        default = pkgs.buildGoModule {
          pname = "psyche";
          version = self.shortRev or "dirty";
          src = self;
          # This hash is a placeholder. The build fails and prints the right hash; insert it here.
          vendorHash = pkgs.lib.fakeHash;
          subPackages = [ "cmd/psyche" ];
          env.CGO_ENABLED = 0;
          doCheck = false;
          nativeBuildInputs = [ pkgs.installShellFiles ];
          postInstall = ''
            $out/bin/psyche print-man > psyche.1
            installManPage psyche.1
            installShellCompletion --cmd psyche --bash <($out/bin/psyche completion bash) \
              --zsh <($out/bin/psyche completion zsh) --fish <($out/bin/psyche completion fish)
          '';
        };
      });

      # A shell in which `make build` finds everything.
      devShells = each (pkgs: {
        default = pkgs.mkShell {
          packages = [ pkgs.go pkgs.gcc pkgs.gnumake pkgs.libtorch-bin ];
          LIBTORCH_INCLUDE = "${pkgs.libtorch-bin.dev}";
          LIBTORCH_LIB = "${pkgs.libtorch-bin}";
        };
      });
    };
}
