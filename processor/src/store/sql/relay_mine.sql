SELECT slice FROM oncely.slice WHERE connector = $1 AND worker = $2
