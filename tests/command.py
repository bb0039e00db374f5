"""A command of couponctl with its options, for tests."""


class Command:
    def __init__(self, stack, name, *options):
        self.stack, self.name, self.options = stack, name, options

    def run(self, *arguments):
        return self.stack.ctl_run(self.name, *arguments, *self.options)

    def __call__(self, *arguments):
        result = self.run(*arguments)
        assert result.returncode == 0, (arguments, result.stdout, result.stderr)
        return result.stdout.strip()

    def refused(self, *arguments, status=1):
        result = self.run(*arguments)
        assert (result.returncode, result.stdout) == (status, ""), result
        return result.stderr.strip()
