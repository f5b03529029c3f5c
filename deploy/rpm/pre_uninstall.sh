# $1 is 0 where the package is removed, and not upgraded.
if [ "$1" -eq 0 ] && [ -d /run/systemd/system ]; then
	systemctl --no-reload disable --now ralph-bot.service ralph-bot-backup.timer || :
fi
